def page(results, notes):
    return [notes]
