-- needs: ends
-- Park claimed jobs that cannot be decoded.
-- ARGV: now (empty: the server's clock), ids. Returns: nothing.
go_on_when_full()
local at = moment(ARGV[1])
for number = 2, #ARGV do
    released[#released + 1] = ARGV[number]
    park(ARGV[number], at)
end
flush(at)
take_ends(at)
