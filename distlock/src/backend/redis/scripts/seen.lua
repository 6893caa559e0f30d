-- What the scripts have in common that free by force. Each script follows with a header of its own.

-- Whether all owners of a key were seen by the person who wants to free it. The argument at `first` is how many more there
-- were than are named, and the names follow. Without these arguments the key is freed, whoever holds it.
-- Of a crowd only some `owners` are listed: there are so many `others`, and `is_other` tells whether one that was seen is among
-- them.
local function are_seen(owners, first, others, is_other)
  local unnamed = tonumber(ARGV[first])
  if not unnamed then return true end
  local seen = {}
  for at = first + 1, #ARGV do seen[ARGV[at]] = true end
  for _, owner in ipairs(owners) do
    if not seen[owner] then unnamed = unnamed - 1 end
  end
  if others and others > 0 then
    unnamed = unnamed - others
    for owner in pairs(seen) do
      if is_other(owner) then unnamed = unnamed + 1 end
    end
  end
  return unnamed >= 0
end

