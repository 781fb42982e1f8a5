"""What translate.py is made of: options, streams, demands on lines, worker processes, output formats."""
