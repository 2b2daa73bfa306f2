-- Return the time. ARGV: now (empty: the server's clock). Returns: microseconds.
return text_of(moment(ARGV[1]))
