"""The reference backend with one defect at a time, of those that vendors make: proof that the conformance kit bites."""
