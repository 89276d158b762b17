"""`berth up`: everything on one machine with nothing installed. See stage.py."""
