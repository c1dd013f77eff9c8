"""What people do with loads that run day by day: run them, ask how far they are and why, turn them back."""
