"""From the records of runs to tables, without torch: read, select, count, write."""
