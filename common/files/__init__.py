"""Files that are read with care, written whole, and replaced only if this project wrote them.

json_files  reads JSON files safely, and checks them against a type with bounds
atomic      writes files whole or not at all
outputs     makes directories as a whole, and replaces only those of the same command
locks       keeps two commands from writing to one output at the same moment
places      says before the work that a place cannot be written to; checks names that come from files
checksums   checksums of files and manifests
"""
