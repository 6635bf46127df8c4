-- ARGV[4] time to live in milliseconds, ARGV[5] "force" to claim over greater tokens
local function forget_greater()
  load()
  for field, claim in pairs(claims) do
    if field > token or (field == token and claim.job ~= job) then drop(field) end
  end
  if finished and finished.token >= token then
    finished = nil
    redis.call('HDEL', lane, 'finished')
  end
  for _, field in ipairs(dropped) do redis.call('HDEL', lane, field) end
  if buried[job] and buried[job].token > token then unbury(job) end
  claims, finished, dropped = {}, nil, {}
end

if ARGV[5] == 'force' then forget_greater() end
local by = assert_claim(tonumber(ARGV[4]), false)
if by == nil then return {'claimed', claims[token].previous} end
if not by then return {'displaced', ''} end
local stands = holder()
if stands and stands.token >= token and stands.job ~= job then by = stands end
return {'displaced', by.job}
