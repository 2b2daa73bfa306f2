-- Remove workers that hold no jobs any more. ARGV: the workers.
for _, key in ipairs({'workers', 'beats', 'dead'}) do
    call('HDEL', P .. key, unpack(ARGV))
end
