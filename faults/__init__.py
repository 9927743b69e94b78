"""Fault injection: kills, full disks, small limits, damaged and crafted files, signals. Run with ``make faults``."""
