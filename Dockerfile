# One image for Airflow's services and for Spark's: the driver and its executors have to agree on Python,
# on the packages and on the jars.
FROM python:3.11-slim-bookworm

# procps: Spark asks `ps` for the memory of the Python processes beside an executor.
RUN apt-get update \
    && apt-get install -y --no-install-recommends openjdk-17-jre-headless procps \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/tidemark

# The embedded stack has SQLite, a deployment has Postgres: the drivers are psycopg2 for Airflow's services
# and asyncpg for the asynchronous parts of its server.
COPY requirements.txt ./
RUN pip install --no-cache-dir -r requirements.txt asyncpg==0.32.0 psycopg2-binary==2.9.13

# Editable: tidemark.environment.repository_folder() is this folder, with dags/, jobs/ and plugins/ beside include/.
COPY pyproject.toml README.md LICENSE ./
COPY include include
COPY plugins plugins
RUN pip install --no-cache-dir --no-deps --editable .

# Into PySpark's own folder: on the class path of driver and executors alike, nothing is fetched or sent by a job.
RUN TIDEMARK_CACHE=/tmp/jars python -c "\
import shutil; \
from tidemark.stack.jars import jar_paths, pyspark_home, resolve_jars; \
from tidemark.stack.java import find_java; \
resolve_jars(['spark'], find_java(print), print); \
[shutil.copy(jar, pyspark_home() / 'jars') for jar in jar_paths('spark')]" \
    && rm -rf /tmp/jars

COPY dags dags
COPY jobs jobs

# A named volume takes its owner from the folder that it is first mounted on.
RUN useradd --uid 10001 --create-home tidemark \
    && mkdir -p /opt/airflow/logs /opt/airflow/login /opt/spark/conf /opt/spark/work \
    && chown -R tidemark: /opt/airflow /opt/spark/work
USER tidemark

ENV AIRFLOW_HOME=/opt/airflow \
    PYSPARK_PYTHON=/usr/local/bin/python3 \
    PYTHONUNBUFFERED=1 \
    SPARK_CONF_DIR=/opt/spark/conf \
    SPARK_HOME=/usr/local/lib/python3.11/site-packages/pyspark
