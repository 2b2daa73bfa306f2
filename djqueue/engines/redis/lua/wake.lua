-- Wake the workers that sleep on these queues, if there are any. ARGV: the queues.
for _, queue in ipairs(ARGV) do
    wake(queue)
end
