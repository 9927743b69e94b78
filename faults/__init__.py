"""Faults on purpose: kills, full disks, small limits, damaged and crafted files, signals. ``make faults`` runs them."""
