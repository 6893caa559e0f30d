-- What the scripts have in common that free by force. Each script follows with a header of its own.

-- Whether all owners of a key were seen by the person who wants to free it. The argument at `first` is how many more there
-- were than are named, and the names follow. Without these arguments the key is freed, whoever holds it.
local function are_seen(owners, first)
  local unnamed = tonumber(ARGV[first])
  if not unnamed then return true end
  local seen = {}
  for at = first + 1, #ARGV do seen[ARGV[at]] = true end
  for _, owner in ipairs(owners) do
    if not seen[owner] then unnamed = unnamed - 1 end
  end
  return unnamed >= 0
end

