//! Memory that is offered for data that come from the server: the payloads of FUSE queue entries
//! whose READs wait for their data.
//!
//! The oldest offer is taken first. Replies usually come in the order of their requests; data in
//! the payload of another entry are copied. Invariant: an offered buffer has no other reference.

use crate::buffer::Pool;
use interface::BufId;

/// Such a buffer.
struct Landing {
    buf: BufId,
    /// Of the data that are expected.
    data_bytes: usize,
}

/// The offers of a lane, the oldest first.
#[derive(Default)]
pub(crate) struct Landings {
    offers: Vec<Landing>,
}

impl Landings {
    /// Offers a buffer for data of at most this length, and at least half of it.
    pub(crate) fn offer(&mut self, buf: BufId, data_bytes: usize) {
        self.offers.push(Landing { buf, data_bytes });
    }

    /// Ends an offer, if there is one.
    pub(crate) fn withdraw(&mut self, buf: BufId) {
        self.offers.retain(|offer| offer.buf != buf);
    }

    /// Takes a buffer for so many bytes: it is lent until it is released.
    pub(crate) fn take(&mut self, data_bytes: usize, pool: &mut Pool) -> Option<BufId> {
        let fits = |offer: &Landing| {
            data_bytes <= offer.data_bytes
                && data_bytes >= offer.data_bytes / 2
                && pool.is_free(offer.buf)
        };
        let place = self.offers.iter().position(fits)?;
        let Landing { buf, .. } = self.offers.remove(place);
        pool.lend(buf);
        Some(buf)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_oldest_offer_that_fits_is_taken_once() {
        let mut pool = Pool::new(0);
        let bufs = [(); 3].map(|()| pool.pin(1 << 20));
        let mut landings = Landings::default();
        assert_eq!(landings.take(1 << 20, &mut pool), None);
        landings.offer(bufs[0], 64 << 10);
        landings.offer(bufs[1], 1 << 20);
        landings.offer(bufs[2], 1 << 20);
        assert_eq!(landings.take((1 << 20) + 1, &mut pool), None, "more than any asked for");
        assert_eq!(landings.take(4 << 10, &mut pool), None, "less than any asked for");
        assert_eq!(landings.take(1 << 20, &mut pool), Some(bufs[1]));
        assert_eq!((pool.is_free(bufs[1]), pool.refs_count(bufs[1])), (false, 1));
        assert_eq!(landings.take(700 << 10, &mut pool), Some(bufs[2]));
        assert_eq!(landings.take(1 << 20, &mut pool), None);
        assert_eq!(landings.take(64 << 10, &mut pool), Some(bufs[0]));
        bufs.into_iter().for_each(|buf| pool.release(buf));
        assert!(bufs.into_iter().all(|buf| pool.is_free(buf)));
    }

    #[test]
    fn a_withdrawn_offer_and_one_in_use_are_not_taken() {
        let mut pool = Pool::new(0);
        let bufs = [(); 2].map(|()| pool.pin(1 << 20));
        let mut landings = Landings::default();
        landings.offer(bufs[0], 1 << 20);
        landings.offer(bufs[1], 1 << 20);
        landings.withdraw(bufs[0]);
        pool.retain(bufs[1]);
        assert_eq!(landings.take(1 << 20, &mut pool), None);
        pool.release(bufs[1]);
        assert_eq!(landings.take(1 << 20, &mut pool), Some(bufs[1]));
    }
}
