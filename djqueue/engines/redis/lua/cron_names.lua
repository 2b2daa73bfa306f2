-- Return the names of the entries of the crontab.
return call('HKEYS', P .. 'cron')
