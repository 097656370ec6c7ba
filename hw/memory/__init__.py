"""On-chip memories as lanes whose addresses flow."""
