-- ARGV[4] the previous holder that CLAIM told, or "": its tombstone is mended even when the lane
-- has forgotten its claim
load()
local mine, stands, previous = claims[token], holder(), ARGV[4]
local reply
if mine and (mine.job ~= job or mine.state == 'w') then
  reply = {'not_mine', ''}
elseif finished and token <= finished.token then
  reply = {'not_mine', ''}
else
  claims[token] = {
    token = token, expires = math.max(now + BASE, mine and mine.expires or 0), state = 'w',
    job = job, previous = '', changed = true
  }
  if previous ~= '' then read_tombstone(previous) end
  mend_all()
  local stone = previous ~= '' and buried[previous]
  if stone and stone.token == token and stone.job == job then
    local by = usurper(previous, token)
    if by then bury(previous, by, now) else unbury(previous) end
  end
  local heir = holder()
  if not mine or mine.expires <= now then
    reply = {'not_mine', ''}
  elseif stands.token ~= token then
    reply = {'repointed', stands.job}
  elseif heir then
    reply = {'restored', heir.job}
  else
    reply = {'vacated', ''}
  end
  store()
end
return reply
