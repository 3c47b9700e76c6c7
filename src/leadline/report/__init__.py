"""Floor 3: results to tables, figures and pages. Never imports run or models."""
