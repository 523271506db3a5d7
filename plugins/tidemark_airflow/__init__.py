"""Tidemark's side of Airflow: operators, sensors, triggers. The library below knows nothing of Airflow."""
