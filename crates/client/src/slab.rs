//! A vector with holes, indexed by small numbers. An index is reused only after its element was
//! removed.

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

    pub(crate) fn insert(&mut self, element: T) -> usize {
        if let Some(index) = self.free.pop() {
            self.places[index] = Some(element);
            return index;
        }
        self.places.push(Some(element));
        self.places.len() - 1
    }

    pub(crate) fn remove(&mut self, index: usize) -> Option<T> {
        let element = self.places.get_mut(index)?.take()?;
        self.free.push(index);
        Some(element)
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
