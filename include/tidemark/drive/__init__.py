"""What a task does, from services to stage: the four acts that Airflow tasks and Spark entry points call.

The stages know nothing of one another; this package is where they meet.
"""
