"""Renders the sources of a repository: kustomizations, charts, and the objects of Flux and Argo CD that deploy them."""
