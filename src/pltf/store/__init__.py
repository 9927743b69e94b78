"""What is kept on disk: netCDF files with a version, written whole or not at all, read without running anything."""
