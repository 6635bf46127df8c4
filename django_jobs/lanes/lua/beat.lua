-- ARGV[4] time to live in milliseconds; an expiry that is later already stays
local by = assert_claim(tonumber(ARGV[4]), true)
if by then return {'usurped', by.job} end
return {'held', ''}
