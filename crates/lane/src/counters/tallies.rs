//! The tallies of open connections, in an array: a request carries the place of its connection's
//! tally, so that nothing is looked up when its reply is counted.

use super::Tally;
use crate::request_header::TallyNo;
use alloc::vec::Vec;
use interface::ConnId;

/// The tally of a connection, or of none.
#[derive(Debug)]
struct Place {
    conn: Option<ConnId>,
    tally: Tally,
}

/// The tallies of a lane's connections. Invariant: as many as there were open connections at a time.
#[derive(Default, Debug)]
pub(crate) struct Tallies {
    places: Vec<Place>,
    free: Vec<TallyNo>,
}

impl Tallies {
    /// A connection opens. Returns the place of its tally.
    pub(crate) fn open(&mut self, conn: ConnId) -> TallyNo {
        let place = Place { conn: Some(conn), tally: Tally::default() };
        if let Some(no) = self.free.pop() {
            self.places[no.index()] = place;
            return no;
        }
        let no = TallyNo::at(self.places.len());
        assert!(no.is_some(), "a lane has fewer connections");
        self.places.push(place);
        no.unwrap_or_default()
    }

    /// A connection ends. Returns its tally.
    pub(crate) fn close(&mut self, no: TallyNo) -> Tally {
        let place = &mut self.places[no.index()];
        place.conn = None;
        self.free.push(no);
        place.tally
    }

    /// The tally of a connection, if that is its place. A request may outlive its connection, and
    /// another one have the place then.
    #[inline]
    pub(crate) fn of_mut(&mut self, no: TallyNo, conn: ConnId) -> Option<&mut Tally> {
        let place = self.places.get_mut(no.index())?;
        (place.conn == Some(conn)).then_some(&mut place.tally)
    }

    /// The tally of an open connection.
    pub(crate) fn of(&self, no: TallyNo) -> &Tally {
        &self.places[no.index()].tally
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_place_that_another_connection_has_now_is_not_mistaken() {
        let mut tallies = Tallies::default();
        let [one, two] = [ConnId(1), ConnId(2)];
        let no = tallies.open(one);
        tallies.of_mut(no, one).unwrap().request_count = 7;
        assert_eq!(tallies.close(no).request_count, 7);
        assert!(tallies.of_mut(no, one).is_none());
        assert_eq!(tallies.open(two), no);
        assert!(tallies.of_mut(no, one).is_none());
        assert_eq!(*tallies.of_mut(no, two).unwrap(), Tally::default());
    }
}
