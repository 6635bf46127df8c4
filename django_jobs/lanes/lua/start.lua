-- ARGV[4] time to live in milliseconds
local by = assert_claim(tonumber(ARGV[4]), false)
if by then return {'superseded', by.job} end
return {'started', ''}
