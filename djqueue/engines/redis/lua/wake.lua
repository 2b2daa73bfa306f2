-- Wake those who sleep on these queues, if anybody does. ARGV: the queues.
for _, queue in ipairs(ARGV) do
    wake(queue)
end
