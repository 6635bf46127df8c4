-- Only the greatest token that ended needs a mark: what is smaller cannot come back.
load()
local mine = claims[token]
local held = mine ~= nil and mine.job == job and mine.state == 'c'
if not mine then register(now + BASE) end
mend_all()
local expires = now + BASE
if not finished or finished.token <= token then
  finished = {token = token, job = job, expires = expires, changed = true}
end
store()
-- What has ended need not be stopped, and nothing would mend its tombstone any more.
if buried[job] and not tops()[job] then unbury(job) end
return {held and 'finished' or 'not_mine', ''}
