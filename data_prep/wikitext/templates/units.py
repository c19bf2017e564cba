"""Units of measurement: the codes of {{convert}}, and the names in a sentence."""

from dataclasses import dataclass


@dataclass(frozen=True)
class UnitName:
    """The names of a unit: singular ("mile", "foot"), plural ("miles", "feet") and symbol ("mi", "ft")."""

    singular: str
    plural: str
    symbol: str


# codes in lower case | singular | plural, empty where an "s" makes it | symbol
_TABLE = """
m | metre | | m
km | kilometre | | km
cm | centimetre | | cm
mm | millimetre | | mm
um,μm | micrometre | | μm
nm | nanometre | | nm
dm | decimetre | | dm
mi,mile,miles | mile | | mi
ft,foot,feet | foot | feet | ft
in,inch,inches | inch | inches | in
yd,yard | yard | | yd
nmi,nm-us | nautical mile | | nmi
fathom,fathoms | fathom | | fathom
ftm | fathom | | ftm
furlong | furlong | | furlong
chain | chain | | chain
rod | rod | | rod
league | league | | league
au | astronomical unit | | au
ly | light-year | | ly
pc | parsec | | pc
kpc | kiloparsec | | kpc
mpc | megaparsec | | Mpc
angstrom,å | ångström | | Å
hand | hand | | h
li | li | li | li
gly | billion light-years | billion light-years | Gly
kly | thousand light-years | thousand light-years | kly
m2,sqm | square metre | | m²
km2,sqkm | square kilometre | | km²
cm2 | square centimetre | | cm²
mm2 | square millimetre | | mm²
ha | hectare | | ha
sqmi,mi2 | square mile | | sq mi
sqft,ft2,sqfoot | square foot | square feet | sq ft
sqin,in2 | square inch | square inches | sq in
sqyd | square yard | | sq yd
acre,acres,ac | acre | | acre
dunam | dunam | | dunam
a | are | | a
sqnmi | square nautical mile | | sq nmi
m3 | cubic metre | | m³
km3 | cubic kilometre | | km³
cm3,cc | cubic centimetre | | cm³
cumi | cubic mile | | cu mi
cuft,ft3 | cubic foot | cubic feet | cu ft
cuin,in3 | cubic inch | cubic inches | cu in
cuyd | cubic yard | | cu yd
l | litre | | L
ml | millilitre | | mL
cl | centilitre | | cL
hl | hectolitre | | hL
usgal,u.s.gal | US gallon | | US gal
impgal,imp gal | imperial gallon | | imp gal
gal | gallon | | gal
usqt | quart | | US qt
pt,imppt,uspt | pint | | pt
impoz,imp floz,impfloz | imperial fluid ounce | | imp fl oz
usoz,usfloz,us floz | US fluid ounce | | US fl oz
acre.ft,acreft | acre-foot | acre-feet | acre⋅ft
oilbbl,bbl,usbeerbbl | barrel | | bbl
usbsh,impbsh,bu | bushel | | bu
dam3 | cubic decametre | | dam³
tun | tun | | tun
g | gram | | g
kg | kilogram | | kg
mg | milligram | | mg
ug,μg,mcg | microgram | | μg
t,mt,tonne,tonnes | tonne | | t
lb,lbs | pound | | lb
oz | ounce | | oz
st,stone | stone | stone | st
lt,lton,long ton | long ton | | long tons
st-us,short ton,shton | short ton | | short tons
ton | ton | | tons
cwt | hundredweight | hundredweight | cwt
gr | grain | | gr
ozt,troy ounce,oz t | troy ounce | | ozt
kt | kilotonne | | kt
carat,ct | carat | | carats
dram,drachm | drachm | | dr
lbt | troy pound | | troy pounds
s | second | | s
min | minute | | min
h,hour | hour | | h
d,day | day | | d
year,yr | year | | yr
ms | millisecond | | ms
km/h,kph,kmh | kilometre per hour | kilometres per hour | km/h
mph,mi/h | mile per hour | miles per hour | mph
m/s,mps | metre per second | metres per second | m/s
kn,knot,knots | knot | | kn
ft/s,fps | foot per second | feet per second | ft/s
km/s | kilometre per second | kilometres per second | km/s
mi/s | mile per second | miles per second | mi/s
ft/min | foot per minute | feet per minute | ft/min
mach | Mach | Mach | Mach
km/d | kilometre per day | kilometres per day | km/d
m/min | metre per minute | metres per minute | m/min
c,°c,degc,celsius | degree Celsius | degrees Celsius | °C
f,°f,degf,fahrenheit | degree Fahrenheit | degrees Fahrenheit | °F
k,°k | kelvin | | K
c-change | degree Celsius | degrees Celsius | °C
f-change | degree Fahrenheit | degrees Fahrenheit | °F
k-change | kelvin | | K
r,°r | degree Rankine | degrees Rankine | °R
hp,bhp,shp,ihp | horsepower | horsepower | hp
w | watt | | W
kw | kilowatt | | kW
mw | megawatt | | MW
gw | gigawatt | | GW
ps,cv | metric horsepower | metric horsepower | PS
tw | terawatt | | TW
j | joule | | J
kj | kilojoule | | kJ
mj | megajoule | | MJ
gj | gigajoule | | GJ
cal | calorie | | cal
kcal | kilocalorie | | kcal
kwh | kilowatt-hour | | kWh
mwh | megawatt-hour | | MWh
gwh | gigawatt-hour | | GWh
twh | terawatt-hour | | TWh
wh | watt-hour | | Wh
ev | electronvolt | | eV
kev | kiloelectronvolt | | keV
mev | megaelectronvolt | | MeV
btu | British thermal unit | | Btu
ftlb,ftlbf,ft.lbf,ft·lbf | foot-pound | | ft⋅lb
nm-t | newton-metre | | N⋅m
lb.ft,lbft,lb·ft,lbf.ft | pound-foot | pound-feet | lb⋅ft
toe | tonne of oil equivalent | tonnes of oil equivalent | toe
kt-tnt | kiloton | | kt
n | newton | | N
kn-force | kilonewton | | kN
lbf | pound-force | pounds-force | lbf
kgf | kilogram-force | kilograms-force | kgf
gf | gram-force | grams-force | gf
n.m,n·m | newton-metre | | N⋅m
pa | pascal | | Pa
hpa | hectopascal | | hPa
kpa | kilopascal | | kPa
mpa | megapascal | | MPa
gpa | gigapascal | | GPa
bar | bar | | bar
mbar | millibar | | mbar
atm | standard atmosphere | | atm
psi,lbf/in2 | pound per square inch | pounds per square inch | psi
inhg | inch of mercury | inches of mercury | inHg
mmhg | millimetre of mercury | millimetres of mercury | mmHg
torr | torr | torr | Torr
hz | hertz | hertz | Hz
khz | kilohertz | kilohertz | kHz
mhz | megahertz | megahertz | MHz
ghz | gigahertz | gigahertz | GHz
thz | terahertz | terahertz | THz
/km2,pd/km2,pd/sqkm,/sqkm | inhabitant per square kilometre | inhabitants per square kilometre | /km²
/sqmi,pd/sqmi,/mi2 | inhabitant per square mile | inhabitants per square mile | /sq mi
/ha | inhabitant per hectare | inhabitants per hectare | /ha
/acre | inhabitant per acre | inhabitants per acre | /acre
g/cm3,g/cc | gram per cubic centimetre | grams per cubic centimetre | g/cm³
kg/m3 | kilogram per cubic metre | kilograms per cubic metre | kg/m³
lb/cuft,lb/ft3 | pound per cubic foot | pounds per cubic foot | lb/cu ft
g/l | gram per litre | grams per litre | g/L
mg/l | milligram per litre | milligrams per litre | mg/L
kg/l | kilogram per litre | kilograms per litre | kg/L
g/ml | gram per millilitre | grams per millilitre | g/mL
m3/s | cubic metre per second | cubic metres per second | m³/s
cuft/s,ft3/s,cufts | cubic foot per second | cubic feet per second | cu ft/s
l/s | litre per second | litres per second | L/s
m3/d | cubic metre per day | cubic metres per day | m³/d
usgal/min,usgpm | US gallon per minute | US gallons per minute | US gal/min
oilbbl/d,bbl/d | barrel per day | barrels per day | bbl/d
m3/h | cubic metre per hour | cubic metres per hour | m³/h
usgal/d | US gallon per day | US gallons per day | US gal/d
mpgus,mpg-us,mpgu.s. | mile per US gallon | miles per US gallon | mpg US
mpgimp | mile per imperial gallon | miles per imperial gallon | mpg imp
l/100 km,l/100km | litre per 100 kilometres | litres per 100 kilometres | L/100 km
mpg | mile per gallon | miles per gallon | mpg
m/s2 | metre per second squared | metres per second squared | m/s²
ft/s2 | foot per second squared | feet per second squared | ft/s²
g0 | standard gravity | standard gravities | g₀
km/l | kilometre per litre | kilometres per litre | km/L
m/km | metre per kilometre | metres per kilometre | m/km
ft/mi | foot per mile | feet per mile | ft/mi
kg/ha | kilogram per hectare | kilograms per hectare | kg/ha
lb/acre | pound per acre | pounds per acre | lb/acre
t/ha | tonne per hectare | tonnes per hectare | t/ha
kg/m2 | kilogram per square metre | kilograms per square metre | kg/m²
lb/sqft | pound per square foot | pounds per square foot | lb/sq ft
kg/kw | kilogram per kilowatt | kilograms per kilowatt | kg/kW
mi/impgal | mile per gallon | miles per gallon | mpg
"""
# Codes in which the case of a letter changes the meaning. All others are looked up in lower case.
_CASE_SENSITIVE = {
    "nm": UnitName("nanometre", "nanometres", "nm"),
    "mW": UnitName("milliwatt", "milliwatts", "mW"),
    "Mm": UnitName("megametre", "megametres", "Mm"),
    "Nm": UnitName("newton-metre", "newton-metres", "N⋅m"),
    "kN": UnitName("kilonewton", "kilonewtons", "kN"),
    "ST": UnitName("short ton", "short tons", "short tons"),
    "LT": UnitName("long ton", "long tons", "long tons"),
}


def _parse(table: str) -> dict[str, UnitName]:
    units: dict[str, UnitName] = {}
    for line in table.strip().split("\n"):
        codes, singular, plural, symbol = (cell.strip() for cell in line.split("|"))
        name = UnitName(singular, plural or f"{singular}s", symbol)
        units |= dict.fromkeys(codes.split(","), name)
    return units


_UNITS = _parse(_TABLE)


def find_unit(code: str) -> UnitName | None:
    """Returns the unit of a code of {{convert}} ("sqmi", "km2", "kW", "pd/sqmi", ...), or None."""
    if code in _CASE_SENSITIVE:
        return _CASE_SENSITIVE[code]
    return _UNITS.get(code.replace("²", "2").replace("³", "3").lower())
