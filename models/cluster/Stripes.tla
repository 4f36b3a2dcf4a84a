------------------------------- MODULE Stripes -------------------------------
\* check: OneOrder
(* One file over two stripes: plain writes, appends, truncations and glimpses of its size,  *)
(* while the metadata shard's primary fails over. Each operation is exactly once at each    *)
(* shard (Repl, Txn); here a shard's step is durable at once. Messages to stripes are late, *)
(* repeated and in any order: a set that only grows.                                        *)
(* Checked: when all is done, one order of the operations, which agrees with the order in   *)
(* which they were called and returned, gives the bytes, the size and every glimpse.        *)
EXTENDS Naturals, FiniteSets, Sequences
CONSTANTS
  Ops,       \* operation -> [kind |-> "write" | "append" | "truncate" | "glimpse", at |-> block or size, blocks |-> count]
  Late,      \* pairs <<a, b>>: b is called once a has returned
  MaxFail,   \* failovers of the metadata shard
  Off        \* rules that are taken away
VARIABLES
  cont,      \* block -> the operation that wrote it, or "hole"
  ext,       \* stripe -> file offset behind the object's last block
  cuts,      \* stripe -> set of [tr, n]: truncations that it has executed
  intent,    \* metadata shard, recorded: the truncation under way, or none
  tr,        \* recorded: number of the last truncation
  resv,      \* recorded: offset behind all reservations
  acked,     \* volatile: stripes that have executed the intent
  driving,   \* volatile: the primary drives the intent on
  look,      \* volatile: glimpse under way for an operation: [op, got]
  net,       \* Cut messages and their answers
  state,     \* operation -> "new" | "called" | "reserved" | "done"
  got,       \* append -> [at, tr]: its reservation; glimpse -> its result
  parts,     \* append -> its blocks that are executed
  before,    \* set of <<a, b>>: a had returned when b was called
  fails
vars == <<cont, ext, cuts, intent, tr, resv, acked, driving, look, net, state, got, parts, before, fails>>
R(rule) == rule \notin Off
S == {0, 1}
Last == 7
Blocks == 0..Last
StripeOf(b) == b % 2
Max(X) == CHOOSE x \in X : \A y \in X : x >= y
Min(X) == CHOOSE x \in X : \A y \in X : x <= y
O == DOMAIN Ops
None == [op |-> "none"]
(* Where the object of stripe s ends in a file of n blocks. *)
End(s, n) == Max({0} \cup {b + 1 : b \in {c \in Blocks : c < n /\ StripeOf(c) = s}})
Init ==
  /\ cont = [b \in Blocks |-> "hole"] /\ ext = [s \in S |-> 0] /\ cuts = [s \in S |-> {}]
  /\ intent = None /\ tr = 0 /\ resv = 0 /\ acked = {} /\ driving = FALSE /\ look = None /\ net = {}
  /\ state = [o \in O |-> "new"] /\ got = [o \in O |-> None] /\ parts = [o \in O |-> {}] /\ before = {} /\ fails = 0
Call(o) ==
  /\ state[o] = "new" /\ (\A p \in O : <<p, o>> \in Late => state[p] = "done") /\ state' = [state EXCEPT ![o] = "called"]
  /\ before' = before \cup {<<p, o>> : p \in {q \in O : state[q] = "done"}}
  /\ UNCHANGED <<cont, ext, cuts, intent, tr, resv, acked, driving, look, net, got, parts, fails>>
Done(o) == state' = [state EXCEPT ![o] = "done"]
Put(b, o) == /\ cont' = [cont EXCEPT ![b] = o]
             /\ ext' = [ext EXCEPT ![StripeOf(b)] = Max({ext[StripeOf(b)], b + 1})]
Write(o) ==
  /\ Ops[o].kind = "write" /\ state[o] = "called" /\ Put(Ops[o].at, o) /\ Done(o)
  /\ UNCHANGED <<cuts, intent, tr, resv, acked, driving, look, net, got, parts, before, fails>>
(* ---- truncation ---- *)
Begin(o) ==
  /\ Ops[o].kind = "truncate" /\ state[o] = "called" /\ intent = None
  /\ (R("looks-end-first") => look = None)
  /\ intent' = [op |-> o, tr |-> tr + 1, n |-> Ops[o].at] /\ tr' = tr + 1 /\ acked' = {} /\ driving' = TRUE
  /\ UNCHANGED <<cont, ext, cuts, resv, look, net, state, got, parts, before, fails>>
Drive ==
  /\ intent # None /\ driving
  /\ net' = net \cup {[is |-> "cut", s |-> s, tr |-> intent.tr, n |-> intent.n] : s \in S} /\ net' # net
  /\ UNCHANGED <<cont, ext, cuts, intent, tr, resv, acked, driving, look, state, got, parts, before, fails>>
Cut(m) ==
  /\ m.is = "cut"
  /\ LET known == {c.tr : c \in cuts[m.s]}
         is_new == IF R("cut-once") THEN \A k \in known : m.tr > k ELSE TRUE
     IN IF is_new
        THEN /\ cont' = [b \in Blocks |-> IF StripeOf(b) = m.s /\ b >= m.n THEN "hole" ELSE cont[b]]
             /\ ext' = [ext EXCEPT ![m.s] = IF m.n > 0 /\ StripeOf(m.n - 1) = m.s THEN m.n ELSE Min({@, End(m.s, m.n)})]
             /\ cuts' = [cuts EXCEPT ![m.s] = @ \cup {[tr |-> m.tr, n |-> m.n]}]
        ELSE UNCHANGED <<cont, ext, cuts>>
  /\ net' = net \cup {[is |-> "done", s |-> m.s, tr |-> m.tr, n |-> m.n]}
  /\ UNCHANGED <<intent, tr, resv, acked, driving, look, state, got, parts, before, fails>>
Hear(m) ==
  /\ m.is = "done" /\ intent # None /\ driving /\ m.tr = intent.tr /\ m.s \notin acked /\ acked' = acked \cup {m.s}
  /\ UNCHANGED <<cont, ext, cuts, intent, tr, resv, driving, look, net, state, got, parts, before, fails>>
Finish ==
  /\ intent # None /\ (IF R("all-cut") THEN acked = S ELSE acked # {})
  /\ Done(intent.op) /\ resv' = (IF R("reset-reserved") THEN intent.n ELSE resv) /\ intent' = None /\ driving' = FALSE /\ acked' = {}
  /\ UNCHANGED <<cont, ext, cuts, tr, look, net, got, parts, before, fails>>
(* ---- size ---- *)
Look(o) ==
  /\ Ops[o].kind \in {"glimpse", "append"} /\ state[o] = "called" /\ look = None
  /\ (R("looks-wait") => intent = None)
  /\ look' = [op |-> o, ends |-> [s \in S |-> 0], asked |-> S]
  /\ UNCHANGED <<cont, ext, cuts, intent, tr, resv, acked, driving, net, state, got, parts, before, fails>>
Ask(s) ==
  /\ look # None /\ s \in look.asked /\ look' = [look EXCEPT !.ends[s] = ext[s], !.asked = @ \ {s}]
  /\ UNCHANGED <<cont, ext, cuts, intent, tr, resv, acked, driving, net, state, got, parts, before, fails>>
Looked ==
  /\ look # None /\ look.asked = {}
  /\ LET o == look.op
         seen == Max({look.ends[s] : s \in S})
         \* Appends have reserved what they have not written yet: the file has that size once they return.
         at == IF R("reserve-looks") THEN Max({resv, seen}) ELSE IF resv = 0 THEN seen ELSE resv
     IN IF Ops[o].kind = "glimpse"
        THEN /\ got' = [got EXCEPT ![o] = [size |-> seen]] /\ Done(o) /\ UNCHANGED resv
        ELSE /\ got' = [got EXCEPT ![o] = [at |-> at, tr |-> tr]] /\ resv' = at + Ops[o].blocks
             /\ state' = [state EXCEPT ![o] = "reserved"]
  /\ look' = None
  /\ UNCHANGED <<cont, ext, cuts, intent, tr, acked, driving, net, parts, before, fails>>
(* ---- append: a part goes straight to its stripe, with the number of the last truncation when it was reserved ---- *)
Part(o, b) ==
  /\ Ops[o].kind = "append" /\ state[o] = "reserved" /\ b \notin parts[o]
  /\ b >= got[o].at /\ b < got[o].at + Ops[o].blocks
  /\ LET later == {c \in cuts[StripeOf(b)] : c.tr > got[o].tr}
         newest == {c \in later : \A d \in later : c.tr >= d.tr}
         counted == IF R("every-later-cut") THEN later ELSE newest
         is_cut == R("cut-what-is-older") /\ \E c \in counted : b >= c.n
     IN IF is_cut THEN UNCHANGED <<cont, ext>> ELSE Put(b, o)
  /\ parts' = [parts EXCEPT ![o] = @ \cup {b}]
  /\ IF Cardinality(parts[o]) + 1 = Ops[o].blocks THEN Done(o) ELSE UNCHANGED state
  /\ UNCHANGED <<cuts, intent, tr, resv, acked, driving, look, net, got, before, fails>>
(* ---- another primary of the metadata shard: what was recorded stays ---- *)
Fail ==
  /\ fails < MaxFail /\ fails' = fails + 1 /\ acked' = {} /\ look' = None
  /\ driving' = (IF R("drive-on") THEN intent # None ELSE FALSE)
  /\ resv' = (IF R("reserve-recorded") THEN resv ELSE 0)
  /\ UNCHANGED <<cont, ext, cuts, intent, tr, net, state, got, parts, before>>
Next ==
  \/ \E o \in O : Call(o) \/ Write(o) \/ Begin(o) \/ Look(o) \/ \E b \in Blocks : Part(o, b)
  \/ Drive \/ Finish \/ Looked \/ Fail
  \/ \E m \in net : Cut(m) \/ Hear(m)
  \/ \E s \in S : Ask(s)
AllDone == \A o \in O : state[o] = "done"
(* All is done, and late messages change nothing: TLC looks for other deadlocks. *)
Stay == AllDone /\ UNCHANGED vars
Spec == Init /\ [][Next \/ Stay]_vars
(* ---- one order for all ---- *)
Apply(file, o) ==
  LET k == Ops[o].kind IN
  CASE k = "write" -> [cont |-> [file.cont EXCEPT ![Ops[o].at] = o], size |-> Max({file.size, Ops[o].at + 1}), ok |-> file.ok]
    [] k = "truncate" -> [cont |-> [b \in Blocks |-> IF b >= Ops[o].at THEN "hole" ELSE file.cont[b]], size |-> Ops[o].at, ok |-> file.ok]
    [] k = "append" -> [cont |-> [b \in Blocks |-> IF b >= file.size /\ b < file.size + Ops[o].blocks THEN o ELSE file.cont[b]],
                        size |-> file.size + Ops[o].blocks, ok |-> file.ok]
    [] k = "glimpse" -> [cont |-> file.cont, size |-> file.size, ok |-> file.ok /\ got[o].size = file.size]
RECURSIVE Orders(_, _)
Orders(file, left) ==
  IF left = {}
  THEN file.ok /\ file.cont = cont /\ file.size = Max({ext[s] : s \in S})
  ELSE \E o \in left : (\A p \in left \ {o} : <<p, o>> \notin before) /\ Orders(Apply(file, o), left \ {o})
OneOrder == AllDone => Orders([cont |-> [b \in Blocks |-> "hole"], size |-> 0, ok |-> TRUE], O)
=============================================================================
