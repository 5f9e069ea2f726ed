"""The named rules of an evaluation, as data: how long, judged how, searched where."""
