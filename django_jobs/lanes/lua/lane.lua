-- What every script of a lane shares; Python puts it in front of each.
--
-- KEYS[1]  the lane: a hash from each claim's token to "expiry state job previous", and from
--          "finished" to the greatest token that ended. The holder is the unexpired claim with the
--          greatest token. State is c (claim) or w (withdrawn by RELEASE, so that a CLAIM
--          which arrives later than its own RELEASE changes nothing).
-- KEYS[2]  the caller's tombstone: "token job" of who superseded it
-- ARGV     prefix of all tombstones of this lane (same hash tag), job, token, then as the script says
--
-- Tokens are 19 digits with leading zeros: a number in Lua loses digits above 2^53, and texts of one
-- length compare like the numbers that they stand for.

local KEPT = 16                     -- claims remembered per lane, so that every call stays cheap
local BASE = 300 * 1000             -- milliseconds
local TOMBSTONE = 7 * 86400 * 1000
local lane, tombstones, job, token = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)

local claims = {}                   -- by token
local finished = nil                -- {token, job, expires}
local buried = {}                   -- by job: {token, job}, or false
local dropped = {}

local function foreign(key)
  error('LANEKEY ' .. key)          -- Python names the key in its error
end

local function read(command, key)
  local reply = redis.pcall(command, key)
  if type(reply) == 'table' and reply.err then foreign(key) end
  return reply
end

local function read_tombstone(of)
  if buried[of] ~= nil then return end
  local value = read('GET', tombstones .. of)
  if not value then buried[of] = false return end
  local by_token, by = value:match('^(%d+) (%S+)$')
  if not by then foreign(tombstones .. of) end
  buried[of] = {token = by_token, job = by}
end

local function load()
  local flat = read('HGETALL', lane)
  for i = 1, #flat, 2 do
    local field, value = flat[i], flat[i + 1]
    if field == 'finished' then
      local expires, by_token, by = value:match('^(%d+) (%d+) (%S+)$')
      if not by then foreign(lane) end
      expires = tonumber(expires)
      if expires > now then finished = {token = by_token, job = by, expires = expires} end
    else
      local expires, state, owner, previous = value:match('^(%d+) ([cw]) (%S+) (%S*)$')
      if not owner or not field:match('^%d+$') then foreign(lane) end
      claims[field] = {
        token = field, expires = tonumber(expires), state = state, job = owner, previous = previous
      }
    end
  end
  for _, claim in pairs(claims) do read_tombstone(claim.job) end
  read_tombstone(job)
end

-- The unexpired claim with the greatest token.
local function holder()
  local found = nil
  for _, claim in pairs(claims) do
    if claim.state == 'c' and claim.expires > now and (not found or claim.token > found.token) then
      found = claim
    end
  end
  return found
end

-- The next greater claim of another job (lapsed ones count: their jobs are newer all the same).
local function usurper(of, above)
  local found = nil
  for _, claim in pairs(claims) do
    if claim.state == 'c' and claim.job ~= of and claim.token > above
        and (not found or claim.token < found.token) then
      found = claim
    end
  end
  if finished and finished.job ~= of and finished.token > above
      and (not found or finished.token < found.token) then
    found = finished
  end
  return found
end

-- By whom the caller is superseded; nil when by nobody.
local function superseded()
  local stone = buried[job]
  if stone and stone.token > token then return stone end
  return usurper(job, token)
end

-- Each job's greatest token. One that only withdrew its claims gets no new tombstone.
local function tops()
  local found = {}
  for _, claim in pairs(claims) do
    local top = found[claim.job]
    local live = claim.state == 'c'
    if not top or (live and not top.live) or (live == top.live and claim.token > top.token) then
      found[claim.job] = {token = claim.token, expires = claim.expires, live = live}
    end
  end
  return found
end

local function bury(of, by, expires)
  local ttl = TOMBSTONE + math.max(0, expires - now)
  redis.call('SET', tombstones .. of, by.token .. ' ' .. by.job, 'PX', string.format('%.0f', ttl))
  buried[of] = {token = by.token, job = by.job}
end

local function unbury(of)
  redis.call('DEL', tombstones .. of)
  buried[of] = false
end

-- A tombstone names the next greater claim. One whose usurper is forgotten meanwhile stands; one
-- whose usurper withdrew, or that has become smaller than its job, does not.
local function mend(of, top)
  local stone = buried[of]
  local named = stone and claims[stone.token]
  local stands = stone and stone.token > top.token and not (named and named.state == 'w')
  local by = usurper(of, top.token)
  if by and (top.live or stone) and not (stands and stone.token <= by.token) then
    bury(of, by, top.expires)
  elseif stone and not stands then
    unbury(of)
  end
end

local function mend_all()
  for of, top in pairs(tops()) do mend(of, top) end
end

local function drop(field)
  claims[field] = nil
  dropped[#dropped + 1] = field
end

-- Writes the lane back: what ended is out, and of the rest the KEPT greatest stay.
local function store()
  local kept = {}
  for field in pairs(claims) do
    if finished and field <= finished.token then drop(field) else kept[#kept + 1] = field end
  end
  table.sort(kept)
  for i = 1, #kept - KEPT do drop(kept[i]) end
  local last = 0
  for field, claim in pairs(claims) do
    last = math.max(last, claim.expires)
    if claim.changed then
      redis.call('HSET', lane, field, string.format(
        '%.0f %s %s %s', claim.expires, claim.state, claim.job, claim.previous))
    end
  end
  if finished then
    last = math.max(last, finished.expires)
    if finished.changed then
      redis.call('HSET', lane, 'finished', string.format(
        '%.0f %s %s', finished.expires, finished.token, finished.job))
    end
  end
  for _, field in ipairs(dropped) do redis.call('HDEL', lane, field) end
  redis.call('PEXPIREAT', lane, string.format('%.0f', last))
end

-- The caller's claim as it will be; an older claim of its own stays underneath.
local function register(expires)
  local mine, before = claims[token], holder()
  local renewed = mine and mine.expires > now
  claims[token] = {
    token = token, expires = expires, state = 'c', job = job, changed = true,
    previous = renewed and mine.previous or (before and before.job or '')
  }
end

-- The one act behind CLAIM, START and BEAT. Returns by whom the caller is superseded, or nil, or
-- false when this claim was released, has ended, or its token is another job's.
local function assert_claim(ttl, never_shorter)
  load()
  local mine, stone = claims[token], buried[job]
  if mine and mine.job ~= job then return mine end
  if finished and finished.token == token and finished.job ~= job then return finished end
  if (mine and mine.state == 'w') or (finished and finished.token == token) then
    return superseded() or false
  end
  -- Beneath a greater claim every claim is noted, or the order of arrival would matter. Where only
  -- a tombstone is left nothing is: who may not run must not hold the lane.
  if stone and stone.token > token and not usurper(job, token) then return stone end
  local expires = now + ttl
  if never_shorter and mine then expires = math.max(expires, mine.expires) end
  register(expires)
  mend_all()
  local by = superseded()
  store()
  return by
end
