"""Renders what a repository deploys: kustomizations, charts, and the objects of Flux and Argo CD that name them."""
