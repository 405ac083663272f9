"""What a worker machine holds: its Spark session and memory budget, and the reading and writing of Iceberg files."""
