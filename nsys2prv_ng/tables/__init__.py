"""Gives out the events of a job as tables: pandas DataFrames, or Parquet and CSV files."""
