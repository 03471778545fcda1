//! Where a key belongs, for people who wrote it in the wrong place.

use super::{Field, MapShape, Shape, Variant};

impl MapShape {
    /// Where else in this file a key may stand, unless it is too common a word to tell.
    pub(super) fn places_of(&'static self, key: &str, except: &MapShape) -> Option<String> {
        let (mut seen, mut places) = (Vec::new(), Vec::new());
        self.search(key, "", &mut seen, &mut |map, path| {
            if !map.is_same(except) {
                places.push(format!("`{path}`").replace("``", "the top of the file"));
            }
        });
        matches!(places.len(), 1 | 2).then(|| places.join(" or "))
    }

    /// Calls back for every map below that has a key, each map once.
    fn search(
        &'static self,
        key: &str,
        path: &str,
        seen: &mut Vec<&'static MapShape>,
        found: &mut dyn FnMut(&MapShape, &str),
    ) {
        if seen.iter().any(|map| map.is_same(self)) {
            return;
        }
        seen.push(self);
        let fields: Vec<&Field> =
            self.fields().chain(self.accepted_variants().flat_map(Variant::fields)).collect();
        let fields: Vec<_> = fields.into_iter().filter(|field| field.is_accepted()).collect();
        if fields.iter().any(|field| field.is(key)) {
            found(self, path);
        }
        for field in fields {
            let dot = if path.is_empty() { "" } else { "." };
            for map in field.shape.maps() {
                map.search(key, &format!("{path}{dot}{}", field.name), seen, found);
            }
        }
    }
}

impl Shape {
    /// The maps directly inside.
    pub(super) fn maps(&'static self) -> Vec<&'static MapShape> {
        match self {
            Self::Map(map) => vec![map],
            Self::List(shape) | Self::Dict(shape) => shape.maps(),
            Self::Either(shapes) => shapes.iter().flat_map(Self::maps).collect(),
            Self::Text(_)
            | Self::Scalar(_)
            | Self::Int { .. }
            | Self::Number { .. }
            | Self::Bool
            | Self::Choice(_)
            | Self::Json => vec![],
        }
    }
}
