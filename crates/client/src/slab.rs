//! A vector with holes: small numbers for things that come and go. It owns nothing else; a number
//! is given out again only after its thing was taken away.

use alloc::vec::Vec;

#[derive(Debug)]
pub(crate) struct Slab<T> {
    places: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Slab<T> {
    pub(crate) const fn new() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }

    pub(crate) fn count(&self) -> usize {
        self.places.len() - self.free.len()
    }

    pub(crate) fn insert(&mut self, thing: T) -> usize {
        if let Some(index) = self.free.pop() {
            self.places[index] = Some(thing);
            return index;
        }
        self.places.push(Some(thing));
        self.places.len() - 1
    }

    pub(crate) fn remove(&mut self, index: usize) -> Option<T> {
        let thing = self.places.get_mut(index)?.take()?;
        self.free.push(index);
        Some(thing)
    }

    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        self.places.get(index)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        self.places.get_mut(index)?.as_mut()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        self.places.iter().enumerate().filter_map(|(index, place)| Some((index, place.as_ref()?)))
    }
}
