"""What the modules of compat/ck_dispatcher share, over the package tessera alone."""
try:
    import tessera
except ImportError as error:
    raise ImportError("the package tessera is missing; 'pip install .' in Tessera's checkout "
                      "installs it") from error

Error = tessera.Error
