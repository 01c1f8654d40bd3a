"""The pages of the catalogue of anomalies, by what they are about."""
