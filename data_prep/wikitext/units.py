"""Units of measurement: what {{convert}} calls them, and what a sentence does."""

from dataclasses import dataclass


@dataclass(frozen=True)
class UnitName:
    """singular ("mile", "foot"), plural ("miles", "feet") and symbol ("mi", "ft")."""

    singular: str
    plural: str
    symbol: str


# code(s) singular [plural] = symbol; without a plural: singular + s.
_TABLE = """
m metre = m; km kilometre = km; cm centimetre = cm; mm millimetre = mm; um,μm micrometre = μm; nm nanometre = nm; dm decimetre = dm
mi,mile,miles mile = mi; ft,foot,feet foot/feet = ft; in,inch,inches inch/inches = in; yd,yard yard = yd; nmi,nm-us nautical_mile = nmi
fathom,fathoms fathom = fathom; ftm fathom = ftm; furlong furlong = furlong; chain chain = chain; rod rod = rod; league league = league
au astronomical_unit = au; ly light-year = ly; pc parsec = pc; kpc kiloparsec = kpc; mpc megaparsec = Mpc; angstrom,å ångström = Å
hand hand = h; li li/li = li; gly billion_light-years/billion_light-years = Gly; kly thousand_light-years/thousand_light-years = kly
m2,sqm square_metre = m²; km2,sqkm square_kilometre = km²; cm2 square_centimetre = cm²; mm2 square_millimetre = mm²; ha hectare = ha
sqmi,mi2 square_mile = sq_mi; sqft,ft2,sqfoot square_foot/square_feet = sq_ft; sqin,in2 square_inch/square_inches = sq_in
sqyd square_yard = sq_yd; acre,acres,ac acre = acre; dunam dunam = dunam; a are = a; sqnmi square_nautical_mile = sq_nmi
m3 cubic_metre = m³; km3 cubic_kilometre = km³; cm3,cc cubic_centimetre = cm³; cumi cubic_mile = cu_mi; cuft,ft3 cubic_foot/cubic_feet = cu_ft
cuin,in3 cubic_inch/cubic_inches = cu_in; cuyd cubic_yard = cu_yd; l litre = L; ml millilitre = mL; cl centilitre = cL; hl hectolitre = hL
usgal,u.s.gal us_gallon = US_gal; impgal,imp gal imperial_gallon = imp_gal; gal gallon = gal; usqt quart = US_qt; pt,imppt,uspt pint = pt
impoz,imp floz,impfloz imperial_fluid_ounce = imp_fl_oz; usoz,usfloz,us floz us_fluid_ounce = US_fl_oz; acre.ft,acreft acre-foot/acre-feet = acre⋅ft
oilbbl,bbl,usbeerbbl barrel = bbl; usbsh,impbsh,bu bushel = bu; dam3 cubic_decametre = dam³; tun tun = tun
g gram = g; kg kilogram = kg; mg milligram = mg; ug,μg,mcg microgram = μg; t,mt,tonne,tonnes tonne = t; lb,lbs pound = lb; oz ounce = oz
st,stone stone/stone = st; lt,lton,long ton long_ton = long_tons; st-us,short ton,shton short_ton = short_tons; ton ton = tons; cwt hundredweight/hundredweight = cwt
gr grain = gr; ozt,troy ounce,oz t troy_ounce = ozt; kt kilotonne = kt; carat,ct carat = carats; dram,drachm drachm = dr; lbt troy_pound = troy_pounds
s second = s; min minute = min; h,hour hour = h; d,day day = d; year,yr year = yr; ms millisecond = ms
km/h,kph,kmh kilometre_per_hour/kilometres_per_hour = km/h; mph,mi/h mile_per_hour/miles_per_hour = mph; m/s,mps metre_per_second/metres_per_second = m/s
kn,knot,knots knot = kn; ft/s,fps foot_per_second/feet_per_second = ft/s; km/s kilometre_per_second/kilometres_per_second = km/s; mi/s mile_per_second/miles_per_second = mi/s
ft/min foot_per_minute/feet_per_minute = ft/min; mach mach/mach = Mach; km/d kilometre_per_day/kilometres_per_day = km/d; m/min metre_per_minute/metres_per_minute = m/min
c,°c,degc,celsius degree_celsius/degrees_celsius = °C; f,°f,degf,fahrenheit degree_fahrenheit/degrees_fahrenheit = °F; k,°k kelvin = K; c-change degree_celsius/degrees_celsius = °C
f-change degree_fahrenheit/degrees_fahrenheit = °F; k-change kelvin = K; r,°r degree_rankine/degrees_rankine = °R
hp,bhp,shp,ihp horsepower/horsepower = hp; w watt = W; kw kilowatt = kW; mw megawatt = MW; gw gigawatt = GW; ps,cv metric_horsepower/metric_horsepower = PS; tw terawatt = TW
j joule = J; kj kilojoule = kJ; mj megajoule = MJ; gj gigajoule = GJ; cal calorie = cal; kcal kilocalorie = kcal; kwh kilowatt-hour = kWh; mwh megawatt-hour = MWh
gwh gigawatt-hour = GWh; twh terawatt-hour = TWh; wh watt-hour = Wh; ev electronvolt = eV; kev kiloelectronvolt = keV; mev megaelectronvolt = MeV; btu british_thermal_unit = Btu
ftlb,ftlbf,ft.lbf,ft·lbf foot-pound/foot-pounds = ft⋅lb; nm-t newton-metre = N⋅m; lb.ft,lbft,lb·ft,lbf.ft pound-foot/pound-feet = lb⋅ft; toe tonne_of_oil_equivalent/tonnes_of_oil_equivalent = toe; kt-tnt kiloton/kilotons = kt
n newton = N; kn-force kilonewton = kN; lbf pound-force/pounds-force = lbf; kgf kilogram-force/kilograms-force = kgf; gf gram-force/grams-force = gf; n.m,n·m newton-metre = N⋅m
pa pascal = Pa; hpa hectopascal = hPa; kpa kilopascal = kPa; mpa megapascal = MPa; gpa gigapascal = GPa; bar bar = bar; mbar millibar = mbar; atm standard_atmosphere = atm
psi,lbf/in2 pound_per_square_inch/pounds_per_square_inch = psi; inhg inch_of_mercury/inches_of_mercury = inHg; mmhg millimetre_of_mercury/millimetres_of_mercury = mmHg; torr torr/torr = Torr
hz hertz/hertz = Hz; khz kilohertz/kilohertz = kHz; mhz megahertz/megahertz = MHz; ghz gigahertz/gigahertz = GHz; thz terahertz/terahertz = THz
/km2,pd/km2,pd/sqkm,/sqkm inhabitant_per_square_kilometre/inhabitants_per_square_kilometre = /km²; /sqmi,pd/sqmi,/mi2 inhabitant_per_square_mile/inhabitants_per_square_mile = /sq_mi
/ha inhabitant_per_hectare/inhabitants_per_hectare = /ha; /acre inhabitant_per_acre/inhabitants_per_acre = /acre
g/cm3,g/cc gram_per_cubic_centimetre/grams_per_cubic_centimetre = g/cm³; kg/m3 kilogram_per_cubic_metre/kilograms_per_cubic_metre = kg/m³; lb/cuft,lb/ft3 pound_per_cubic_foot/pounds_per_cubic_foot = lb/cu_ft
g/l gram_per_litre/grams_per_litre = g/L; mg/l milligram_per_litre/milligrams_per_litre = mg/L; kg/l kilogram_per_litre/kilograms_per_litre = kg/L; g/ml gram_per_millilitre/grams_per_millilitre = g/mL
m3/s cubic_metre_per_second/cubic_metres_per_second = m³/s; cuft/s,ft3/s,cufts cubic_foot_per_second/cubic_feet_per_second = cu_ft/s; l/s litre_per_second/litres_per_second = L/s; m3/d cubic_metre_per_day/cubic_metres_per_day = m³/d
usgal/min,usgpm us_gallon_per_minute/us_gallons_per_minute = US_gal/min; oilbbl/d,bbl/d barrel_per_day/barrels_per_day = bbl/d; m3/h cubic_metre_per_hour/cubic_metres_per_hour = m³/h; usgal/d us_gallon_per_day/us_gallons_per_day = US_gal/d
mpgus,mpg-us,mpgu.s. mile_per_us_gallon/miles_per_us_gallon = mpg_US; mpgimp mile_per_imperial_gallon/miles_per_imperial_gallon = mpg_imp; l/100 km,l/100km litre_per_100_kilometres/litres_per_100_kilometres = L/100_km; mpg mile_per_gallon/miles_per_gallon = mpg
m/s2 metre_per_second_squared/metres_per_second_squared = m/s²; ft/s2 foot_per_second_squared/feet_per_second_squared = ft/s²; g0 standard_gravity/standard_gravities = g₀; km/l kilometre_per_litre/kilometres_per_litre = km/L
m/km metre_per_kilometre/metres_per_kilometre = m/km; ft/mi foot_per_mile/feet_per_mile = ft/mi; kg/ha kilogram_per_hectare/kilograms_per_hectare = kg/ha; lb/acre pound_per_acre/pounds_per_acre = lb/acre; t/ha tonne_per_hectare/tonnes_per_hectare = t/ha
kg/m2 kilogram_per_square_metre/kilograms_per_square_metre = kg/m²; lb/sqft pound_per_square_foot/pounds_per_square_foot = lb/sq_ft; kg/kw kilogram_per_kilowatt/kilograms_per_kilowatt = kg/kW; mi/impgal mile_per_gallon/miles_per_gallon = mpg
"""
_UPPER_WORDS = {
    "us": "US",
    "celsius": "Celsius",
    "fahrenheit": "Fahrenheit",
    "rankine": "Rankine",
    "british": "British",
    "mach": "Mach",
}
# Where case alone tells one code from another.
_CASE_SENSITIVE = {
    "MW": "mw",
    "mW": "mW",
    "Mm": "Mm",
    "nm": "um/1000",
    "MJ": "mj",
    "ST": "st-us",
    "LT": "lt",
    "Nm": "n.m",
    "kN": "kn-force",
}


def _parse(table: str) -> dict[str, UnitName]:
    units = {}
    for entry in table.replace("\n", ";").split(";"):
        if not entry.strip():
            continue
        names, symbol = entry.strip().rsplit(" = ", 1)
        codes, words = names.rsplit(" ", 1)
        singular, _, plural = words.partition("/")
        name = UnitName(_words(singular), _words(plural or singular + "s"), symbol.replace("_", " "))
        for code in codes.split(","):
            units[code] = name
    return units


def _words(text: str) -> str:
    return " ".join(_UPPER_WORDS.get(word, word) for word in text.split("_"))


_UNITS = _parse(_TABLE)
_UNITS["nanometre"] = UnitName("nanometre", "nanometres", "nm")
_UNITS["milliwatt"] = UnitName("milliwatt", "milliwatts", "mW")
_UNITS["megametre"] = UnitName("megametre", "megametres", "Mm")
_CASE_SENSITIVE |= {"nm": "nanometre", "mW": "milliwatt", "Mm": "megametre"}


def find_unit(code: str) -> UnitName | None:
    """The unit that a code of {{convert}} means, or None: "sqmi", "km2", "kW", "pd/sqmi", ..."""
    code = _CASE_SENSITIVE.get(code, code)
    code = code.replace("²", "2").replace("³", "3").replace("_", " ")
    return _UNITS.get(code.lower())
