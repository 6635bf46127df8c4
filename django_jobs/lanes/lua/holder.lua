-- Who holds the lane, and for how many milliseconds still. Changes nothing.
load()
local found = holder()
if not found then return {'', '0', '0'} end
return {found.job, found.token, string.format('%.0f', found.expires - now)}
