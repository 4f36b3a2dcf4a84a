------------------------------- MODULE Suspend -------------------------------
\* check: NoStrayWrite
(* A fence of the kind "suspended": client x, cut off for a while, loses its lock to y, comes back as a *)
(* new incarnation, may take the lock again once y has given it back, and writes. The data shard may    *)
(* move between two servers, which see the fence late and restart. No write may be executed that x       *)
(* issued under a hold of the lock that is over and behind which y has had it.                           *)
EXTENDS Naturals, FiniteSets
CONSTANTS MaxTerm, Off
VARIABLES
  fence,     \* etcd: incarnations of x up to this one are fenced; 0: none
  term, prim, my, serving, lease,   \* the data shard's map entry, and what servers d1 and d2 know of it
  seen,      \* server -> the fence that it has seen
  said,      \* server -> the term in which it said that it has seen the fence
  hold,      \* holds of the lock so far, odd: x's, even: y's; who has it is its parity
  free,      \* nobody holds it
  inc,       \* x: its incarnation
  dirty,     \* x: the hold under which its unwritten bytes were made; 0: none
  net,       \* writes on their way: [inc, hold]; they come late, and more than once
  bad, boots
vars == <<fence, term, prim, my, serving, lease, seen, said, hold, free, inc, dirty, net, bad, boots>>
D == {"d1", "d2"}
R(x) == x \notin Off
Init ==
  /\ fence = 0 /\ term = 1 /\ prim = "d1" /\ my = [d \in D |-> IF d = "d1" THEN 1 ELSE 0]
  /\ serving = [d \in D |-> d = "d1"] /\ lease = {"d1"} /\ seen = [d \in D |-> 0]
  /\ said = [d \in D |-> 0] /\ hold = 1 /\ free = FALSE /\ inc = 1 /\ dirty = 0 /\ net = {} /\ bad = FALSE /\ boots = 0
(* As its first incarnation x believes that it holds the lock, until it hears that it is suspended. *)
Make == /\ dirty = 0 /\ (inc = 1 \/ hold = 3) /\ dirty' = (IF inc = 1 THEN 1 ELSE 3)
        /\ UNCHANGED <<fence, term, prim, my, serving, lease, seen, said, hold, free, inc, net, bad, boots>>
Send == /\ dirty # 0 /\ net' = net \cup {[inc |-> inc, hold |-> dirty]} /\ net' # net
        /\ UNCHANGED <<fence, term, prim, my, serving, lease, seen, said, hold, free, inc, dirty, bad, boots>>
Clean == /\ dirty # 0 /\ [inc |-> inc, hold |-> dirty] \in net /\ dirty' = 0
         /\ UNCHANGED <<fence, term, prim, my, serving, lease, seen, said, hold, free, inc, net, bad, boots>>
Fence == /\ fence = 0 /\ fence' = 1
         /\ UNCHANGED <<term, prim, my, serving, lease, seen, said, hold, free, inc, dirty, net, bad, boots>>
(* x hears of it and connects anew. What it had not written is lost: the next fsync fails once. *)
Return == /\ fence = 1 /\ inc = 1 /\ inc' = 2 /\ dirty' = (IF R("drop-dirty") THEN 0 ELSE dirty)
          /\ UNCHANGED <<fence, term, prim, my, serving, lease, seen, said, hold, free, net, bad, boots>>
(* F3, F4: the barrier, then the lock is y's. *)
Grant == /\ fence = 1 /\ hold = 1 /\ hold' = 2 /\ free' = FALSE
         /\ (R("barrier") => IF R("said-term") THEN said[prim] = term ELSE said[prim] > 0)
         /\ UNCHANGED <<fence, term, prim, my, serving, lease, seen, said, inc, dirty, net, bad, boots>>
Release == /\ hold = 2 /\ ~free /\ free' = TRUE
           /\ UNCHANGED <<fence, term, prim, my, serving, lease, seen, said, hold, inc, dirty, net, bad, boots>>
Again == /\ free /\ inc = 2 /\ hold' = 3 /\ free' = FALSE
         /\ UNCHANGED <<fence, term, prim, my, serving, lease, seen, said, inc, dirty, net, bad, boots>>
(* ---- the data shard's servers ---- *)
Watch(d) == /\ seen[d] < fence /\ seen' = [seen EXCEPT ![d] = fence]
            /\ UNCHANGED <<fence, term, prim, my, serving, lease, said, hold, free, inc, dirty, net, bad, boots>>
Say(d) == /\ seen[d] = 1 /\ serving[d] /\ my[d] > said[d] /\ said' = [said EXCEPT ![d] = my[d]]
          /\ UNCHANGED <<fence, term, prim, my, serving, lease, seen, hold, free, inc, dirty, net, bad, boots>>
Takeover(d) == /\ term < MaxTerm /\ d # prim /\ term' = term + 1 /\ prim' = d
               /\ UNCHANGED <<fence, my, serving, lease, seen, said, hold, free, inc, dirty, net, bad, boots>>
Become(d) == /\ prim = d /\ my[d] < term /\ my' = [my EXCEPT ![d] = term] /\ serving' = [serving EXCEPT ![d] = FALSE]
             /\ UNCHANGED <<fence, term, prim, lease, seen, said, hold, free, inc, dirty, net, bad, boots>>
Serve(d) == /\ my[d] > 0 /\ ~serving[d] /\ my[d] = term /\ lease \subseteq {d}
            /\ serving' = [serving EXCEPT ![d] = TRUE] /\ lease' = lease \cup {d}
            /\ seen' = (IF R("takeover-reads") THEN [seen EXCEPT ![d] = fence] ELSE seen)
            /\ UNCHANGED <<fence, term, prim, my, said, hold, free, inc, dirty, net, bad, boots>>
Lapse(d) == /\ d \in lease /\ lease' = lease \ {d}
            /\ UNCHANGED <<fence, term, prim, my, serving, seen, said, hold, free, inc, dirty, net, bad, boots>>
Reboot(d) == /\ boots < 1 /\ boots' = boots + 1 /\ seen' = [seen EXCEPT ![d] = 0]
             /\ serving' = [serving EXCEPT ![d] = FALSE] /\ lease' = lease \ {d}
             /\ UNCHANGED <<fence, term, prim, my, said, hold, free, inc, dirty, net, bad>>
(* A request names its incarnation. A server that has seen the fence refuses what is fenced, and takes later ones. *)
Execute(d, m) ==
  /\ serving[d] /\ d \in lease /\ (R("refuse-fenced") => m.inc > seen[d])
  /\ bad' = (bad \/ m.hold < hold)
  /\ UNCHANGED <<fence, term, prim, my, serving, lease, seen, said, hold, free, inc, dirty, net, boots>>
Next ==
  \/ Make \/ Send \/ Clean \/ Fence \/ Return \/ Grant \/ Release \/ Again
  \/ \E d \in D : Watch(d) \/ Say(d) \/ Takeover(d) \/ Become(d) \/ Serve(d) \/ Lapse(d) \/ Reboot(d) \/ \E m \in net : Execute(d, m)
Spec == Init /\ [][Next]_vars
NoStrayWrite == ~bad
=============================================================================
