"""Judges: rubrics, the prompt that a judge reads, its reply, what needs no judge, and which judge may grade.

Pure functions of records and texts. Asking a judge is `leadline.run.judge`, what the verdicts say is
`leadline.results.judge_results`.
"""
