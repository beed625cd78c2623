"""Parts of the benchmark `imports`: what one fresh interpreter does and reports."""
