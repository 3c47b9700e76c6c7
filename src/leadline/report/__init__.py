"""Floor 3: records to tables, figures and pages. Never imports run or models."""
