-- Name the entries of the crontab.
return call('HKEYS', P .. 'cron')
