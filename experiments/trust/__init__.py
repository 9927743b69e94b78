"""How far predictions and their uncertainty can be trusted on real data, beside other tools: ``make trust``."""
