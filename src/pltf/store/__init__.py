"""Storage on disk: versioned netCDF files, written atomically and read without executing anything."""
