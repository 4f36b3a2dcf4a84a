#!/usr/bin/env bash
# check.sh [CASE...]: runs TLC over the cases in cases.txt, all by default. Needs Java and TLC's jar ($TLC_JAR).
# A case named MODULE_off_RULE takes a rule away and must find a counterexample; every other one must find none.
set -euo pipefail
cd "$(dirname "$0")"
jar=${TLC_JAR:?set TLC_JAR to the path of tla2tools.jar}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
status=0
while IFS='|' read -r name module constants; do
  name=${name// /} module=${module// /}
  [[ -z $name || $name == \#* ]] && continue
  if (($# > 0)) && [[ " $* " != *" $name "* ]]; then continue; fi
  off=${name#*_off_}
  [[ $off == "$name" ]] && off='{}' || off="{\"$off\"}"
  { echo "---- MODULE MC ----"; echo "EXTENDS $module"; echo "$constants" | tr ';' '\n'; echo "mc_Off == $off"; echo "===="; } >"$out/MC.tla"
  { echo "SPECIFICATION Spec"; grep -oE 'mc_[A-Za-z]+' "$out/MC.tla" | sort -u | sed 's/mc_\(.*\)/CONSTANT \1 <- mc_\1/'
    echo "INVARIANT $(sed -n 's/^\\\* check: //p' "$module.tla")"; } >"$out/MC.cfg"
  cp "$module.tla" "$out/"
  (cd "$out" && java -Xmx3g -XX:+UseParallelGC -cp "$jar" tlc2.TLC -workers "${WORKERS:-1}" -config MC.cfg MC.tla) >"$out/$name.log" 2>&1 || true
  states=$(grep -oE '[0-9]+ distinct states found' "$out/$name.log" | tail -1)
  if grep -q 'No error has been found' "$out/$name.log"; then found=nothing
  elif grep -qE 'Invariant .* is violated|Deadlock reached' "$out/$name.log"; then found=$(grep -oE 'Invariant .* is violated|Deadlock reached' "$out/$name.log" | head -1)
  else found="ERROR: $(grep -m1 -A3 Error "$out/$name.log" | tr '\n' ' ')"; fi
  wanted=$([[ $name == *_off_* ]] && echo counterexample || echo nothing)
  verdict=ok
  [[ $found == ERROR* || ($wanted == nothing && $found != nothing) || ($wanted != nothing && $found == nothing) ]] && { verdict=WRONG; status=1; cp "$out/$name.log" "/tmp/tlc-$name.log"; }
  printf '%-5s %-34s %s; %s\n' "$verdict" "$name" "$found" "$states"
done <cases.txt
exit $status
