-- Put jobs aside that were claimed and cannot be read.
-- ARGV: now (empty: the server's clock), ids. Returns: nothing.
go_on_when_full()
local at = moment(ARGV[1])
for number = 2, #ARGV do
    released[#released + 1] = ARGV[number]
    park(ARGV[number], at)
end
flush(at)
